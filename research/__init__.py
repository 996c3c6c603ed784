"""How the bundled models were made, and experiments on bias trained into them. Nothing else imports it."""
