"""What a transformer of Qwen2.5's kind costs: bytes that are read, operations that are computed."""

from __future__ import annotations

from dataclasses import dataclass

VOCABULARY = 151936
HALF = 2  # bytes of a bfloat16 number


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model."""

    name: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    tied: bool

    @property
    def head(self) -> int:
        """Parameters of the output head."""
        return VOCABULARY * self.width

    @property
    def body(self) -> int:
        """Parameters of the layers."""
        kv = self.width // self.heads * self.kv_heads
        return self.layers * (2 * self.width * self.width + 2 * self.width * kv + 3 * self.width * self.mlp)

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.body + self.head * (1 if self.tied else 2)

    @property
    def weight_bytes(self) -> int:
        """The weights in bfloat16."""
        return HALF * self.parameters

    @property
    def token_bytes(self) -> int:
        """Keys and values of a token in bfloat16."""
        return 2 * HALF * self.layers * self.kv_heads * (self.width // self.heads)

    def forward(self, tokens: float, pairs: float, scored: float = 0) -> float:
        """Operations of a forward pass; ``pairs`` of a token and one that it attends to, ``scored`` by the head."""
        return 2 * self.body * tokens + 4 * pairs * self.width * self.layers + 2 * self.head * scored

    def update(self, tokens: float, pairs: float, scored: float) -> float:
        """Operations of a forward and a backward pass; attention and the head compute some of it twice."""
        return 6 * self.body * tokens + 14 * pairs * self.width * self.layers + 8 * self.head * scored


SHAPES = {
    shape.name: shape
    for shape in (
        ModelShape("0.5B", 896, 24, 14, 2, 4864, True),
        ModelShape("1.5B", 1536, 28, 12, 2, 8960, True),
        ModelShape("7B", 3584, 28, 28, 4, 18944, False),
        ModelShape("32B", 5120, 64, 40, 8, 27648, False),
    )
}
