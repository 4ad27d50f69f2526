"""Who may do what: tokens, projects and their members, and the operations on them."""
