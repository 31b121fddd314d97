"""Pure rules: roles and permissions, life cycles, retry rules. No input, no output, no clock of its own."""
