package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/kube-node-ready/kube-node-ready/internal/strictyaml"
)

// relocate says of an unknown key that stands in the wrong section, or outside of any, where
// it belongs: "reverify" at the top of a file is nodeManagement.reverify.
func relocate(faults strictyaml.Faults) {
	homes := sectionKeys()
	for i, fault := range faults {
		if !fault.Unknown || strings.Contains(fault.Path, "[") || strings.Count(fault.Path, ".") > 1 {
			continue
		}
		key := fault.Path[strings.LastIndexByte(fault.Path, '.')+1:]
		if home := homes[key]; len(home) == 1 {
			faults[i].Message = fmt.Sprintf("unknown key here; move it to %s.%s", home[0], key)
		}
	}
}

// sectionKeys lists, for every key of a section, the sections that have it.
func sectionKeys() map[string][]string {
	homes := map[string][]string{}
	for _, section := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if section.Type.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(section.Type) {
			if key := jsonName(f); key != "" {
				homes[key] = append(homes[key], jsonName(section))
			}
		}
	}
	return homes
}

// jsonName is the key of a field; empty for one that the file cannot set.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
