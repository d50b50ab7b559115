package sign

import (
	"bytes"
	"crypto/rsa"
	"testing"
	"time"
)

func TestTimesAndNoncesOfSortedKV(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 31, 16, 0, 1, 987_654_321, time.UTC).In(time.FixedZone("", -5*60*60))
	for format, want := range map[kvTime]string{
		timeUnix: "1798732801", timeUnixMS: "1798732801987", timeDateTime: "2027-01-01 00:00:01",
	} {
		if got := format.text(at); got != want {
			t.Errorf("%s: %s, want %s", format, got, want)
		}
	}
	const many = 2000
	letters := make(map[rune]int)
	for range many {
		for _, c := range newNonce() {
			letters[c]++
		}
	}
	const each = many * nonceLen / len(nonceLetters)
	for _, c := range nonceLetters {
		if n := letters[c]; n < each*3/4 || n > each*5/4 { // ten standard deviations
			t.Errorf("%q: %d times, about %d are expected", c, n, each)
		}
	}
}

// TestKeysAreParsedOnce: the same key is the same parsed one.
func TestKeysAreParsedOnce(t *testing.T) {
	t.Parallel()
	c := NewCache()
	var parsed [3]*rsa.PrivateKey
	made, err := NewSecret(UseRSA)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewSecret(UseRSA)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range [][]byte{made, bytes.Clone(made), other} {
		if parsed[i], err = c.rsaKey(key); err != nil {
			t.Fatal(err)
		}
	}
	if parsed[0] != parsed[1] || parsed[0] == parsed[2] {
		t.Error("a key was parsed twice, or is another one")
	}
}
