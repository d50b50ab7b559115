package sign

import (
	"bytes"
	"crypto/rsa"
	"net/url"
	"slices"
	"testing"
	"time"
)

func FuzzSortedKV(f *testing.F) {
	f.Add("application/json", `{"a":1,"b":"x"}`)
	f.Add("", "a=1&b=%20")
	f.Add("text/xml", "<x><a>1</a><b/></x>")
	f.Fuzz(func(t *testing.T, contentType, body string) {
		fields, err := readFields(contentType, []byte(body))
		if err != nil || fields.has("sign") {
			return
		}
		o := newSortedKV(algHMAC)
		want := o.canonical(fields.fields)
		with := fields.appendTo([]byte(body), []kvField{{"sign", "AB+/="}})
		again, err := readFields(contentType, with)
		if err != nil || o.canonical(again.fields) != want || again.value("sign") != "AB+/=" {
			t.Fatalf("%q becomes %q: %v", body, with, err)
		}
		fresh := sortedKV{Nonce: "nonce_str", Time: "timestamp", TimeFormat: timeDateTime}
		added := fresh.attemptFields(time.Now())
		if !fields.has(string(fresh.Nonce)) && !fields.has(string(fresh.Time)) {
			both := fields.appendTo([]byte(body), added)
			again, err := readFields(contentType, both)
			want := o.canonical(append(slices.Clone(fields.fields), added...))
			if err != nil || o.canonical(again.fields) != want {
				t.Fatalf("%q becomes %q: %v", body, both, err)
			}
		}
		if _, err := url.ParseQuery(string(with)); fields.form == kvURLEncoded && err != nil {
			t.Fatal(err)
		}
	})
}

func TestNoncesOfSortedKV(t *testing.T) {
	t.Parallel()
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

// TestKeysAreParsedOnce checks the cache of RSA keys.
func TestKeysAreParsedOnce(t *testing.T) {
	t.Parallel()
	c := NewCache()
	var parsed [3]*rsa.PrivateKey
	secrets := rsaSecrets()
	made, other := secrets[0].Key, secrets[1].Key
	for i, key := range [][]byte{made, bytes.Clone(made), other} {
		var err error
		parsed[i], err = c.rsaKey(key)
		if err != nil {
			t.Fatal(err)
		}
	}
	if parsed[0] != parsed[1] || parsed[0] == parsed[2] {
		t.Error("a key was parsed twice, or two keys share one entry")
	}
}
