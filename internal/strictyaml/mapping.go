package strictyaml

import (
	"gopkg.in/yaml.v3"
)

// entry is one key of a mapping.
type entry struct {
	key   string
	path  string
	line  int // the key's: the value may start further down
	value *yaml.Node
}

// dotted and indexed write the path of a key as field.Path.Child and field.Path.Key do.
func dotted(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func indexed(path, key string) string { return path + "[" + key + "]" }

// entries lists the keys of the mapping n in the file's order and faults what is no key, or
// is there twice. Keys that a merge ("<<") brings follow, unless they are set directly.
func (d *decoder) entries(n *yaml.Node, path string, join func(path, key string) string) ([]entry, bool) {
	if n.Kind != yaml.MappingNode {
		d.fault(n, path, "must be a mapping, not %s", found(n))
		return nil, false
	}
	var list []entry
	var merges []*yaml.Node
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		if key.Kind != yaml.ScalarNode || (key.ShortTag() != "!!str" && key.ShortTag() != "!!timestamp") {
			d.fault(key, path, "a key must be a string, not %s", found(key))
			continue
		}
		at := join(path, key.Value)
		if first, ok := seen[key.Value]; ok {
			d.fault(n.Content[i], at, "is set twice, first in line %d", first)
			continue
		}
		if !d.note(n.Content[i], at) {
			break
		}
		line := n.Content[i].Line
		seen[key.Value] = line
		list = append(list, entry{key: key.Value, path: at, line: line, value: value})
	}
	for _, merge := range merges {
		list = d.merge(merge, path, join, seen, list)
	}
	return list, true
}

// merge appends what a "<<" brings: the keys of a mapping, or of each mapping in a list,
// where the first that sets a key wins (https://yaml.org/type/merge.html).
func (d *decoder) merge(n *yaml.Node, path string, join func(path, key string) string, seen map[string]int, list []entry) []entry {
	if n = d.enter(n, path); n == nil {
		return list
	}
	defer d.leave()
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			list = d.merge(item, path, join, seen, list)
		}
		return list
	}
	merged, _ := d.entries(n, path, join)
	for _, e := range merged {
		if _, ok := seen[e.key]; ok {
			d.doc.lines[e.path] = seen[e.key]
			continue
		}
		seen[e.key] = e.line
		list = append(list, e)
	}
	return list
}
