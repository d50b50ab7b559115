package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// functions are the functions that testdata/texts.txt calls.
var functions = map[string]func(text string) any{
	"IsCredentialHeader": func(text string) any { return IsCredentialHeader(text) },
	"IsAddressLane":      func(text string) any { return IsAddressLane(text) },
	"IDTime":             func(text string) any { return IDTime(text) },
	"CheckHost": func(text string) any {
		if err := CheckHost(text); err != nil {
			return err
		}
		return "valid"
	},
	"AddressLane": func(text string) any {
		lane, err := AddressLane(text)
		if err != nil {
			return err
		}
		return lane
	},
	// SameHost URL URL
	"SameHost": func(text string) any {
		a, b, _ := strings.Cut(text, " ")
		return SameHost(a, b)
	},
	// NamesHost URL HOST,…
	"NamesHost": func(text string) any {
		url, hosts, listed := strings.Cut(text, " ")
		if !listed {
			return NamesHost(nil, url)
		}
		return NamesHost(strings.Split(hosts, ","), url)
	},
	// Observe MILLISECONDS returns their buckets.
	"Observe": func(text string) any {
		ms, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return err
		}
		var late LatenessHistogram
		var took TookHistogram
		late.Observe(ms)
		took.Observe(ms)
		return fmt.Sprintf("lateness %d, took %d", slices.Index(late[:], 1), slices.Index(took[:], 1))
	},
	"MaskPAN": func(text string) any {
		redacted, masked := MaskPAN([]byte(text))
		if masked != HasPAN([]byte(text)) || masked == (string(redacted) == text) {
			return fmt.Sprintf("%s, masked: %t, has a PAN: %t", redacted, masked, !masked)
		}
		if !masked {
			return "none"
		}
		return string(redacted)
	},
}

func TestTexts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/texts.txt", func(input string) string {
		name, text, _ := strings.Cut(input, " ")
		return fmt.Sprint(functions[name](text))
	})
}
