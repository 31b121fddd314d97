"""The policy gateway: OpenAI-compatible chat for agents, a key for each rollout, and the policies that answer.

Import the parts by name (`osmosis_ai.gateway.server`, `.provider`, `.record`, ...): the pure ones load no framework.
"""
