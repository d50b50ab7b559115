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

// TestAddresses: what addresses and versions are read as.
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
			told := refusalOf(answer)
			if !errors.Is(told, answer) {
				t.Errorf("%s hides what the servers answered", told)
			}
			return told.Error()
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
		t.Errorf("the error tells a part of the password, or has several lines: %v", err)
	}
	return err.Error()
}
