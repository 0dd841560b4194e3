"""An adversary who knows two neighbouring tables, watches releases, and says how far they can be told apart."""
