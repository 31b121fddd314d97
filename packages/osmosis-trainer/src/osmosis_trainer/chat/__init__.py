"""Chat in, token ids out, and back: the template, the tokenizer, the parser of answers."""
