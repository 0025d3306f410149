"""Pages that belong to no single app, the components and the frame around every page."""
