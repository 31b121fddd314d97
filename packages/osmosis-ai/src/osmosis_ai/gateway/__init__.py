"""The policy gateway: OpenAI-compatible chat for agents, a key for each rollout, and the policies that answer.

Import the parts by name (`osmosis_ai.gateway.server`, `.provider`, `.record`, ...): the pure ones load no framework.
"""

import logging

# without a handler of its own, Python prints a library's warnings to the user's stderr
logging.getLogger(__name__).addHandler(logging.NullHandler())
