"""Callbacks of those who train: the Trainer of transformers, and Lightning's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnlab.files.errors import InputError

if TYPE_CHECKING:
    from attnlab.observing.observer import Observer


def trainer_callback(observer: Observer) -> Any:
    """What `Trainer(callbacks=[...])` takes: the start, every so many steps, the end."""
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise _missing("callback()", "transformers") from None

    class Attention(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            observer.step(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            observer.step(state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            observer.finish(state.global_step)

    return Attention()


def lightning_callback(observer: Observer) -> Any:
    """What `lightning.Trainer(callbacks=[...])` takes."""
    Callback = _lightning_callback_class()

    class Attention(Callback):  # type: ignore[misc, valid-type]
        """Counts batches after which an optimizer has stepped: `global_step` counts the steps of
        each optimizer."""

        steps, seen = 0, 0
        restored: int | None = None

        def state_dict(self) -> dict[str, int]:
            return {"steps": self.steps}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.restored = state["steps"]

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self.seen = trainer.global_step
            optimizers = len(getattr(trainer, "optimizers", ())) or 1
            self.steps = self.seen // optimizers if self.restored is None else self.restored
            self.restored = None
            observer.step(self.steps)

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step > self.seen:
                self.seen = trainer.global_step
                self.steps += 1
                observer.step(self.steps)

        def on_train_end(self, trainer: Any, module: Any) -> None:
            observer.finish(self.steps)

    return Attention()


def _lightning_callback_class() -> type:
    """Of whichever of its two names is installed."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            found: type = __import__(name, fromlist=["Callback"]).Callback
        except ImportError:
            continue
        return found
    raise _missing("lightning()", "lightning")


def _missing(what: str, package: str) -> InputError:
    return InputError(f"{what}: needs {package}, which is not installed; pip install {package}")
