"""recollect from Python: what `import recollect` offers, each a function over the parts that the command line uses."""

import os
import warnings

# as for the command line: progress is shown by recollect alone
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore", "IProgress not found")  # tqdm's, in a notebook: its bars are not used
