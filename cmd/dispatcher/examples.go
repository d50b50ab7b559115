package main

import (
	_ "embed"
	"strings"
)

// exampleText has examples for the help of each command: the words of the command on one line, then the
// example, indented.
//
//go:embed examples.txt
var exampleText string

// Examples returns the examples by command. Those of the program itself have the name "".
func (*commands) Examples() map[string]string {
	examples := map[string]string{}
	for block := range strings.SplitSeq(exampleText, "\n\n") {
		command, example, _ := strings.Cut(block, "\n")
		examples[strings.TrimPrefix(command, "dispatcher")] = strings.TrimRight(example, "\n")
	}
	return examples
}
