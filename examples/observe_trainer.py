"""A training with the Trainer of transformers, observed through its callback.

`observe_trainer.py 10` makes 10 steps only. Writes observed.html and observed.nc.
"""

import sys

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import attnlab
from attnlab.tasks.text import open_corpus

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
CONTEXT = 64

corpus = open_corpus("builtin", vocab_size=1000)
rows = corpus.train[: len(corpus.train) // CONTEXT * CONTEXT].reshape(-1, CONTEXT)
examples = [{"input_ids": row.tolist(), "labels": row.tolist()} for row in rows]
config = GPT2Config(
    vocab_size=corpus.vocab_size,
    n_positions=CONTEXT,
    n_layer=2,
    n_head=4,
    n_embd=64,
    bos_token_id=0,
    eos_token_id=0,
)
model = GPT2LMHeadModel(config)

observer = attnlab.observe(model, probe=rows[:8], every=max(1, STEPS // 20))
settings = TrainingArguments(
    "trained",
    max_steps=STEPS,
    per_device_train_batch_size=16,
    learning_rate=3e-3,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model, settings, train_dataset=examples)
observer.attach(trainer)  # measures as it trains, and logs to what `report_to` names
trainer.train()

result = observer.result()  # over step, layer, head
attnlab.save(result, "observed.nc")
attnlab.observing.report(result, "observed.html")
print(*attnlab.observing.in_words(result), sep="\n")
