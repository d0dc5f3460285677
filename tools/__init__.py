"""What maintainers run: packaging, compatibility, the documentation's site. Not part of the package."""
