//! What the cluster asks for on this node, in types that cannot hold nonsense.
