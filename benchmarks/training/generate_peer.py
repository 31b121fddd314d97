"""Tokens a CPU second of transformers' `generate`, 64 sequences at once; run by peers.py in a venv that has it.

    python generate_peer.py MODEL_FOLDER

The kindest case for it: equal prompts and lengths, no sequence ends early, no log-probabilities asked for.
"""

import json
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch

torch.set_num_threads(1)
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
prompts = torch.randint(20, 400, (64, 60))
options = dict(do_sample=True, top_k=0, min_new_tokens=64, max_new_tokens=64, pad_token_id=0)
with torch.no_grad():
    model.generate(prompts[:2], attention_mask=torch.ones_like(prompts[:2]), **options)
    best = 0.0
    for _ in range(3):
        cpu = time.process_time()
        model.generate(prompts, attention_mask=torch.ones_like(prompts), **options)
        best = max(best, 64 * 64 / (time.process_time() - cpu))
print(json.dumps({"tokens_per_cpu_s": best}))
