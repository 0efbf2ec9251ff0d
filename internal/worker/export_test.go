package worker

import "reflect"

// ToleratedKeys lists the keys that Load passes over: of the worker section, and at the top.
func ToleratedKeys() (worker, top []string) {
	return unread(reflect.TypeFor[workerSection]()), unread(reflect.TypeFor[file]())
}

// unread lists the fields of type any.
func unread(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if f := t.Field(i); f.Type.Kind() == reflect.Interface {
			names = append(names, f.Tag.Get("json"))
		}
	}
	return names
}
