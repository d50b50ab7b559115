package queuetest

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// BenchSizes returns the numbers that the environment variable lists ("1000,5000000"), or the usual ones when it is not set. A list
// that cannot be read fails the benchmark.
func BenchSizes(b *testing.B, variable string, usual ...int) []int {
	b.Helper()
	list := os.Getenv(variable)
	if list == "" {
		return usual
	}
	var sizes []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 {
			b.Fatalf("%s: %q is not a number above 0", variable, text)
		}
		sizes = append(sizes, n)
	}
	return sizes
}
