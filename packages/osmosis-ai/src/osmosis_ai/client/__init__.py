"""The platform from the client's side: addresses, logins, requests, transfers. Knows no output format and no prompt."""
