"""A package, so that its fixtures end with it: Playwright keeps an event loop running in the thread."""
