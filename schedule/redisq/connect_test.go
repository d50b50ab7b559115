package redisq

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// TestAddresses checks how addresses, versions and errors of servers are read.
func TestAddresses(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/addresses/read.txt", func(line string) string {
		operation, word, _ := strings.Cut(line, " ")
		text, err := strconv.Unquote(word)
		switch {
		case operation == "url" && err == nil:
			a, err := parseURL(text)
			return cmp.Or(refused(t, err), fmt.Sprintf("%+v", a))
		case operation == "version" && err == nil:
			return cmp.Or(refused(t, CheckVersion(text)), "good")
		case operation == "answer" && err == nil:
			answer := errors.New(text)
			got := refusalOf(answer)
			if !errors.Is(got, answer) {
				t.Errorf("%s does not wrap the servers' reply", got)
			}
			return got.Error()
		}
		t.Fatalf("%s: %v", line, err)
		return ""
	})
}

// refused returns an error's text, which is one line without a secret; empty: there is no error.
func refused(t *testing.T, err error) string {
	if err == nil {
		return ""
	}
	if strings.Contains(err.Error(), "sec") || strings.Contains(err.Error(), "ret") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has a part of the password, or several lines: %v", err)
	}
	return err.Error()
}
