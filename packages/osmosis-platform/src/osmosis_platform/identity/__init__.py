"""Who is who: passwords, tokens, sessions, device logins, accounts, invitations. Routes and pages are in api."""
