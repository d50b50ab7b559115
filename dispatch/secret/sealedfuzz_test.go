package secret

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// FuzzMasterKeys: accepted keys encrypt, and no error contains a key.
func FuzzMasterKeys(f *testing.F) {
	one, two := masterKey(1), masterKey(2)
	for _, s := range []string{
		one, one + "," + two, one + "," + one, " " + one + "\n", one[:40], strings.ReplaceAll(one, "=", ""),
		"", ",", one + ",x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		keys := strings.Split(list, ",")
		ring, err := NewKeyring(keys)
		if err != nil {
			for _, key := range keys {
				if len(key) >= 16 && strings.Contains(err.Error(), key) {
					t.Errorf("the error shows a key: %v", err)
				}
			}
			return
		}
		id, sealed := ring.Seal("of a row", []byte("plain"))
		if plain, err := ring.Open("of a row", id, sealed); err != nil || string(plain) != "plain" ||
			id != ring.KeyID() {
			t.Errorf("%q opens %q, %v", list, plain, err)
		}
		last, err := NewKeyring(keys[:1])
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := last.Open("of a row", id, sealed); err != nil || string(plain) != "plain" {
			t.Errorf("the first of %q alone opens %q, %v", list, plain, err)
		}
	})
}

// FuzzSealed: a ciphertext decrypts to its text with its own binding only. Any other column value results in
// one of the two errors.
func FuzzSealed(f *testing.F) {
	ring := mustKeyring(f, masterKey(1))
	for _, s := range []string{
		"", ":", ring.KeyID() + ":", ring.KeyID() + ":AAAA", "ffffffff:AAAA", ring.SealText("a", "b"),
		"x:y:z", ring.KeyID() + ":!",
	} {
		f.Add(s, "a", "secret", 3, byte(1))
	}
	f.Fuzz(func(t *testing.T, text, bound, plain string, at int, flip byte) {
		if _, err := ring.OpenText(bound+"x", text); err == nil || !errors.Is(err, ErrTampered) &&
			!errors.Is(err, ErrUnknownKey) {
			t.Errorf("%q opens, or fails with %v", text, err)
		}
		sealed := ring.SealText(bound, plain)
		if got, err := ring.OpenText(bound, sealed); err != nil || got != plain {
			t.Errorf("%q comes back as %q, %v", plain, got, err)
		}
		if got, err := ring.OpenText(bound+"x", sealed); err == nil {
			t.Errorf("what is sealed for %q opens for another as %q", bound, got)
		}
		keyID, encoded, _ := store.CutSealed(sealed)
		raw, err := base64.RawStdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Clone(raw)
		changed[uint(at)%uint(len(raw))] ^= max(flip, 1)
		if got, err := ring.Open(bound, keyID, changed); !errors.Is(err, ErrTampered) {
			t.Errorf("a changed ciphertext opens as %q, %v", got, err)
		}
	})
}

// FuzzSealedHeaders: headers decrypt unchanged for the host that they were sealed for. For another host the
// credentials are left out.
func FuzzSealedHeaders(f *testing.F) {
	ring := mustKeyring(f, masterKey(1))
	f.Add("Authorization", "Bearer x", "https://shop.example/a", "https://other.example/")
	f.Add("X-Shop", "7", "https://shop.example/a", "https://shop.example:443/b")
	f.Add("authorization", "a\nb", "", "https://shop.example")
	f.Add("Cookie", "", "no address", "https://[::1]")
	f.Fuzz(func(t *testing.T, name, value, url, other string) {
		given := []store.Header{{Name: name, Value: value}}
		if given[0].Sealed() != "" {
			return // sign.CheckHeaders rejects it earlier
		}
		sealed := ring.SealHeaders("shop", "cb_1", url, given)
		if store.IsCredentialHeader(name) && sealed[0].Sealed() == "" {
			t.Fatalf("%s: %q is not sealed", name, value)
		}
		if got, err := ring.OpenHeaders("shop", "cb_1", url, sealed); err != nil ||
			!slices.Equal(got, given) {
			if _, hostErr := store.AddressLane(url); hostErr == nil || err != nil {
				t.Errorf("%q comes back as %q, %v", given, got, err)
			}
		}
		if _, err := store.AddressLane(url); err == nil && store.IsCredentialHeader(name) &&
			!store.SameHost(url, other) {
			if got, err := ring.OpenHeaders("shop", "cb_1", other, sealed); err != nil || len(got) > 0 {
				t.Errorf("%q, sealed for %q, is given to %q: %q, %v", given, url, other, got, err)
			}
		}
		if _, err := ring.OpenHeaders("shop", "cb_2", url, sealed); err == nil &&
			store.IsCredentialHeader(name) {
			t.Errorf("%q opens for another owner", given)
		}
	})
}
