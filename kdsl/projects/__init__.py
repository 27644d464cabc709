"""New projects from templates: ``kdsl init``."""
