// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// simple makes a call whose arguments are an object, lists of ids and numbers: region_get_holders is Region.Holders, and its keys are the
// arguments in their order. It returns false if there is no such method.
func simple(s *step) (bool, error) {
	object, ok := s.state.objects[s.name]
	if !ok {
		return false, nil
	}
	value := reflect.ValueOf(object)
	noun := snake(value.Elem().Type().Name())
	for i := 0; i < value.NumMethod(); i++ {
		name := snake(value.Type().Method(i).Name)
		if s.call == noun+"_"+name || s.call == noun+"_get_"+name {
			return true, callMethod(s, value.Method(i))
		}
	}
	return false, nil
}

func callMethod(s *step, method reflect.Value) error {
	if method.Type().NumIn() != len(s.in.order) {
		fail("%s has %d numbers", s.call, method.Type().NumIn())
	}
	var arguments []reflect.Value
	for i, key := range s.in.order {
		if argument := method.Type().In(i); argument.Kind() == reflect.Slice {
			arguments = append(arguments, reflect.ValueOf(s.in.numbers(key)))
		} else {
			arguments = append(arguments, reflect.ValueOf(s.in.number(key)).Convert(argument))
		}
	}
	results := method.Call(arguments)
	last := len(results) - 1
	for _, result := range results[:last] {
		if result.Kind() == reflect.Slice { // raise_epochs returns epochs
			s.put(s.call[strings.LastIndex(s.call, "_")+1:], joined(result))
			continue
		}
		for i := 0; i < result.NumField(); i++ {
			s.put(snake(result.Type().Field(i).Name), result.Field(i))
		}
	}
	err, _ := results[last].Interface().(error)
	return err
}

// joined returns numbers as a list of the tables.
func joined(numbers any) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(numbers), "[]")), ",")
}

// snake spells a name as the tables do: NumExtents is num_extents, NUMANode is numa_node.
func snake(name string) string {
	var text strings.Builder
	letters := []rune(name)
	for i, letter := range letters {
		starts := unicode.IsUpper(letter) && i > 0 &&
			(!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if starts {
			text.WriteByte('_')
		}
		text.WriteRune(unicode.ToLower(letter))
	}
	return text.String()
}
