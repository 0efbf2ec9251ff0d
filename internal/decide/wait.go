package decide

// Wait is one thing that a node waits for before its first worker starts.
type Wait struct {
	// Kind is the prerequisite's key in the configuration: nodeReady, conditions, pods, csiNodes and so on.
	Kind string
	// Name says which prerequisite of that kind, as it is configured: the same for every node, so that it can be a
	// metric's label.
	Name string
	// Why says what is missing on this node, for a person.
	Why string
}
