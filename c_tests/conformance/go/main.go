// SPDX-License-Identifier: Apache-2.0

// Runs the conformance tables through the Go binding; see ../README.md.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	kvmem "kvmem/bindings/go"
)

// failed is the value of a panic that ends the run.
type failed string

func fail(format string, arguments ...any) { panic(failed(fmt.Sprintf(format, arguments...))) }

// values are the key=value words of a step; get marks a key as known.
type values struct {
	words map[string]string
	known map[string]bool
	order []string
}

func newValues() *values { return &values{map[string]string{}, map[string]bool{}, nil} }

func (v *values) add(word string) {
	key, value, ok := strings.Cut(word, "=")
	if !ok {
		fail("expected key=value, found %q", word)
	}
	v.words[key] = value
	v.order = append(v.order, key)
}

func (v *values) get(key string) (string, bool) {
	v.known[key] = true
	value, ok := v.words[key]
	return value, ok
}

func (v *values) text(key string) string {
	value, _ := v.get(key)
	return value
}

func (v *values) number(key string) uint64 {
	value, ok := v.get(key)
	if !ok {
		return 0
	}
	if value == "forever" {
		return ^uint64(0)
	}
	return number(value)
}

func number(text string) uint64 {
	value, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		fail("expected a number, found %q", text)
	}
	return value
}

func (v *values) numbers(key string) []uint32 {
	var list []uint32
	for _, word := range v.list(key) {
		list = append(list, uint32(number(word)))
	}
	return list
}

// list returns the items of a list.
func (v *values) list(key string) []string {
	value, ok := v.get(key)
	if !ok || value == "" {
		return nil
	}
	return strings.Split(value, ",")
}

// cut splits a pair at its colon.
func cut(pair string) (string, string) {
	first, second, ok := strings.Cut(pair, ":")
	if !ok {
		fail("expected a pair, found %q", pair)
	}
	return first, second
}

// word returns the value of a constant, flags those of several.
func word[T ~uint32](v *values, key string, words map[string]uint64) T {
	value, ok := v.get(key)
	if !ok {
		return 0
	}
	constant, ok := words[value]
	if !ok {
		fail("no word %q for %s", value, key)
	}
	return T(constant)
}

func flags[T ~uint64](v *values, key string, words map[string]uint64) T {
	var result uint64
	if value, ok := v.get(key); ok && value != "" {
		for _, flag := range strings.Split(value, "+") {
			constant, ok := words[flag]
			if !ok {
				fail("no flag %q for %s", flag, key)
			}
			result |= constant
		}
	}
	return T(result)
}

func (v *values) checkKnown(what string) {
	for key := range v.words {
		if !v.known[key] {
			fail("%s has no key %q", what, key)
		}
	}
}

// step is one line of a table.
type step struct {
	call, name string
	in         *values
	status     string
	want       *values
	result     map[string]string // after OK
	state      *state
}

// state is what exists during a case.
type state struct {
	folder   string
	objects  map[string]io.Closer
	order    []string
	tokens   map[string]kvmem.Token
	bytes    map[string][]byte // by name, such as metadata
	released map[string]chan struct{}
}

func (s *state) begin() {
	s.end()
	folder, err := os.MkdirTemp("", "kvmem-conformance-")
	if err != nil {
		fail("%v", err)
	}
	*s = state{folder: folder, objects: map[string]io.Closer{}, tokens: map[string]kvmem.Token{},
		bytes: map[string][]byte{}, released: map[string]chan struct{}{}}
}

// end destroys what the case has left, the last created object first.
func (s *state) end() {
	for i := len(s.order) - 1; i >= 0; i-- {
		if object := s.objects[s.order[i]]; object != nil {
			object.Close()
		}
	}
	if s.folder != "" {
		os.RemoveAll(s.folder)
	}
	*s = state{}
}

// object returns an object of a type by its name.
func object[T io.Closer](s *state, name string) T {
	found, ok := s.objects[name]
	if !ok {
		fail("there is no object %q", name)
	}
	typed, ok := found.(T)
	if !ok {
		fail("%q is a %T", name, found)
	}
	return typed
}

// create stores what a call has created under the name of the step.
func create[T io.Closer](s *step, value T, err error) error {
	if err == nil {
		s.state.objects[s.name] = value
		s.state.order = append(s.state.order, s.name)
	}
	return err
}

func (s *state) path(text string) string {
	if strings.HasPrefix(text, "@") {
		return filepath.Join(s.folder, text[1:])
	}
	return text
}

// put adds a result that the table may compare.
func (s *step) put(key string, value any) { s.result[key] = fmt.Sprint(value) }

func parse(line string, state *state) *step {
	words := strings.Fields(line)
	s := &step{call: words[0], in: newValues(), status: "OK", want: newValues(), result: map[string]string{}, state: state}
	words = words[1:]
	if len(words) > 0 && words[0] != "->" && !strings.Contains(words[0], "=") {
		s.name, words = words[0], words[1:]
	}
	to := s.in
	for i := 0; i < len(words); i++ {
		if words[i] == "->" {
			if i++; i == len(words) {
				fail("-> without a status")
			}
			s.status, to = words[i], s.want
			continue
		}
		to.add(words[i])
	}
	return s
}

// run makes the call of a step and compares its outcome.
func (s *step) run() {
	if creates[s.call] && s.state.objects[s.name] != nil {
		fail("there is an object %q already", s.name)
	}
	var err error
	if call, ok := calls[s.call]; ok {
		err = call(s)
	} else if ok, err = simple(s); !ok {
		fail("there is no call %q, or no object %q", s.call, s.name)
	}
	s.in.checkKnown(s.call)
	status, failure := "OK", &kvmem.Error{}
	if errors.As(err, &failure) {
		status = strings.TrimPrefix(failure.Status.Name(), "KVMEM_STATUS_")
	} else if err == errInProgress {
		status = "IN_PROGRESS"
	} else if err != nil {
		fail("the error is no *kvmem.Error: %v", err)
	}
	if status != s.status {
		fail("expected %s, found %s %s", s.status, status, failure.Message)
	}
	if failure.Status != kvmem.StatusOK {
		s.result = map[string]string{"domain": wordOf(domains, failure.Domain), "cause": failure.CodeName}
		if part, ok := s.want.get("contains"); ok && !strings.Contains(failure.Message, part) {
			fail("expected a message with %q, found %q", part, failure.Message)
		}
	}
	for key, want := range s.want.words {
		found, ok := s.result[key]
		if _, compared := s.want.known[key]; compared {
			continue
		}
		if !ok {
			fail("%s returns no %q", s.call, key)
		}
		if normal(found) != normal(s.state.path(want)) {
			fail("expected %s=%s, found %s", key, want, found)
		}
	}
}

// normal makes equal values equal text: numbers of any base, flags in any order.
func normal(text string) string {
	words := strings.Split(text, ",")
	for i, word := range words {
		if value, err := strconv.ParseUint(word, 0, 64); err == nil {
			words[i] = strconv.FormatUint(value, 10)
		}
		set := strings.Split(words[i], "+")
		sort.Strings(set)
		words[i] = strings.Join(set, "+")
	}
	return strings.Join(words, ",")
}

func runTable(path string) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	cases, steps, line := 0, 0, 0
	current := &state{}
	defer current.end()
	defer func() {
		if value := recover(); value != nil {
			message, ok := value.(failed)
			if !ok {
				panic(value)
			}
			err = fmt.Errorf("%s:%d: %s", path, line, message)
		}
	}()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		line++
		text := scanner.Text()
		if strings.HasPrefix(text, "#") || strings.TrimSpace(text) == "" {
			continue
		}
		if strings.HasPrefix(text, "case ") {
			current.begin()
			cases++
			continue
		}
		if current.folder == "" {
			fail("a step before the first case")
		}
		parse(text, current).run()
		steps++
	}
	fmt.Printf("%s: %d cases, %d steps\n", filepath.Base(path), cases, steps)
	return scanner.Err()
}

func main() {
	for _, path := range os.Args[1:] {
		if err := runTable(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
