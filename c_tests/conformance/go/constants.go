// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sort"
	"strings"
)

// wordOf returns the word of a constant.
func wordOf[T ~uint32](words words, constant T) string {
	for word, value := range words {
		if value == uint64(constant) {
			return word
		}
	}
	return "?"
}

func flagsOf[T ~uint64](words words, constants T) string {
	var set []string
	for word, value := range words {
		if uint64(constants)&value != 0 {
			set = append(set, word)
		}
	}
	sort.Strings(set)
	return strings.Join(set, "+")
}
