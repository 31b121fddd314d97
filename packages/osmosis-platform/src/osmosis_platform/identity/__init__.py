"""Who somebody is: passwords, sessions, tokens, device logins, accounts. What they may do is in domain.permissions."""
