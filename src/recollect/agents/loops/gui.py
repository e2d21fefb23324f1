"""An agent that sees a screen and works it: a screenshot, an action, the next screenshot."""

from __future__ import annotations

from recollect.agents.first_prompt import given_system
from recollect.agents.session import Conversation, Session
from recollect.agents.tool_loop import spoken
from recollect.chat import Renderer
from recollect.config import Config
from recollect.gui.action_syntax import SYNTAXES, BadAction
from recollect.gui.environment import GuiAction
from recollect.gui.on_screen import OnScreen, frame_of, open_environment, task_problem
from recollect.registries import PromptSpec, agent
from recollect.types import IMAGE_MARK, Action, Image, Message, Task

SHOWN = 300  # characters of what could not be read that are kept


def _system(cfg: Config) -> str:
    given = cfg.agent.system_prompt
    return SYNTAXES[cfg.gui.syntax].prompt if given is None else given


OPENING = PromptSpec("system", _system, _system, demonstrations=False)


@agent(
    sees=True,
    limits_context=True,
    tokens=lambda *given: gui_tokens(*given),
    task_problem=task_problem,
    prompts=(OPENING,),
)
async def gui(task: Task, session: Session, cfg: Config) -> str:
    """Act on the screen until its goal is reached, the agent says that it has finished, or the steps are used up."""
    environment = open_environment(task, cfg)
    try:
        image = await environment.see()
        frame = frame_of(image, session.binding("agent").renderer.patches, cfg.gui.coordinates)
        desk = OnScreen(environment, frame, cfg.gui.syntax)
        session.trajectory.world = desk
        stop, answer = await _work(desk, image, task, session, cfg)
        session.trajectory.stop, session.trajectory.success = stop, await environment.reached()
        return answer
    finally:
        session.trajectory.world = None
        await environment.close()


async def _work(desk: OnScreen, image: Image, task: Task, session: Session, cfg: Config) -> tuple[str, str]:
    """Why it ended, and what was said at the end."""
    talk, renderer = Conversation(_opening(desk, image, task, cfg)), session.binding("agent").renderer
    limit = cfg.agent.max_tokens_per_turn or session.sampling.max_tokens
    for _ in range(cfg.agent.max_turns):
        talk.keep_images(renderer, cfg.gui.history)
        if not await _fits(talk, session, cfg, limit):
            return "context_full", ""
        done = await session.generate(talk, max_tokens=limit)
        said = spoken(renderer.said(done.ids) if done.ids else done.text)
        action, trouble = await _act(desk, said, session)
        if action is not None and action.kind == "finished":
            return "answered", action.text
        if await desk.environment.reached():
            return "goal", ""
        if await desk.environment.ended():
            return "screen_ended", ""
        image = await desk.environment.see()
        talk.add(Message("user", f"{trouble}\n{IMAGE_MARK}" if trouble else IMAGE_MARK, (image,)))
    return "max_turns", ""


def _opening(desk: OnScreen, image: Image, task: Task, cfg: Config) -> list[Message]:
    """The system prompt, the first screenshot and what is to be done."""
    chosen = given_system(cfg)
    system = _system(cfg) if chosen is None else chosen
    wide, high = (f"{n:g}" for n in desk.frame.seen)
    system = system.replace("{width}", wide).replace("{height}", high)
    asked = Message("user", f"{task.question}\n{IMAGE_MARK}", (image,))
    return [Message("system", system), asked] if system else [asked]


async def _act(desk: OnScreen, said: str, session: Session) -> tuple[GuiAction | None, str]:
    """Read an action and take it; what was wrong is for the model to see."""
    turn, record = len(session.trajectory.turns), session.trajectory.actions
    try:
        action = SYNTAXES[desk.syntax].read(said, desk.frame)
    except BadAction as error:
        record.append(Action("gui", said[:SHOWN], str(error), "malformed", turn))
        session.note(f"{said[:SHOWN]} → {error}")
        return None, str(error)
    desk.frame = desk.frame.after(action)
    trouble = await desk.environment.act(action)
    record.append(Action(action.kind, action.shown(), trouble, "exception" if trouble else "ok", turn))
    session.note(f"{action.kind} {action.shown()}" + (f" → {trouble}" if trouble else ""))
    return action, trouble


async def _fits(talk: Conversation, session: Session, cfg: Config, limit: int) -> bool:
    """Whether the next prompt and a whole turn fit the context."""
    bound = session.binding("agent")
    limits = [n for n in (getattr(bound.policy, "window", None), cfg.agent.max_context_length) if n is not None]
    talk.accept(ids := await talk.upcoming_soon(bound.renderer))
    fits = not limits or len(ids) + limit <= min(limits)
    if not fits and not session.trajectory.turns:
        raise ValueError(
            f"the first prompt has {len(ids)} tokens, its screenshot included, and with {limit} for an action only "
            f"{min(limits)} fit the context: raise agent.max_context_length, or lower agent.max_tokens_per_turn"
        )
    return fits


def gui_tokens(cfg: Config, task: Task, renderer: Renderer) -> tuple[int, int, int, int]:
    """Turns, prompt tokens, response tokens and the longest turn of one trajectory, at most."""
    turns, said = cfg.agent.max_turns, cfg.agent.max_tokens_per_turn or cfg.data.max_response_length
    prompt = cfg.data.max_prompt_length
    return turns, turns * prompt, turns * said, prompt + said
