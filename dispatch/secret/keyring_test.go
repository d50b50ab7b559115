package secret

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// masterKey returns a key of equal bytes in the format of the settings.
func masterKey(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, MasterKeyBytes))
}

func mustKeyring(t testing.TB, keys ...string) *Keyring {
	t.Helper()
	k, err := NewKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyring(t *testing.T) {
	t.Parallel()
	k := mustKeyring(t, masterKey(1))
	for _, plain := range [][]byte{nil, []byte("a secret"), make([]byte, 10_000)} {
		id, sealed := k.Seal("sec_1", plain)
		if id != k.KeyID() || len(id) != 8 {
			t.Errorf("key id %q", id)
		}
		if len(plain) > 0 && bytes.Contains(sealed, plain) {
			t.Error("the ciphertext shows the plaintext")
		}
		if _, again := k.Seal("sec_1", plain); bytes.Equal(again, sealed) {
			t.Error("two ciphertexts of the same are equal")
		}
		got, err := k.Open("sec_1", id, sealed)
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("Open = %q, %v", got, err)
		}
		if _, err := k.Open("sec_2", id, sealed); !errors.Is(err, ErrTampered) {
			t.Errorf("another row's: %v", err)
		}
		if _, err := k.Open("sec_1", "00000000", sealed); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("unknown key: %v", err)
		}
		for i := range min(len(sealed), 100) {
			bad := bytes.Clone(sealed)
			bad[i] ^= 1
			if _, err := k.Open("sec_1", id, bad); !errors.Is(err, ErrTampered) {
				t.Errorf("byte %d changed: %v", i, err)
			}
		}
		for _, short := range [][]byte{nil, sealed[:5], sealed[:len(sealed)-1]} {
			if _, err := k.Open("sec_1", id, short); !errors.Is(err, ErrTampered) {
				t.Errorf("%d bytes: %v", len(short), err)
			}
		}
	}
}

func TestKeyringRotation(t *testing.T) {
	t.Parallel()
	before := mustKeyring(t, masterKey(1))
	oldID, sealed := before.Seal("sec_1", []byte("a secret"))
	both := mustKeyring(t, masterKey(2), masterKey(1))
	if got, err := both.Open("sec_1", oldID, sealed); err != nil || string(got) != "a secret" {
		t.Errorf("a row of the old key: %q, %v", got, err)
	}
	newID, renewed := both.Seal("sec_1", []byte("a secret"))
	if newID == oldID || newID != both.KeyID() {
		t.Errorf("sealed with %s, not with the first key %s", newID, both.KeyID())
	}
	after := mustKeyring(t, masterKey(2))
	if _, err := after.Open("sec_1", newID, renewed); err != nil {
		t.Errorf("a renewed row: %v", err)
	}
	if _, err := after.Open("sec_1", oldID, sealed); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a row of a key that is gone: %v", err)
	}
	if _, err := after.Open("sec_1", newID, sealed); !errors.Is(err, ErrTampered) {
		t.Errorf("a row that names the wrong key: %v", err)
	}
}

func TestNewKeyringRefuses(t *testing.T) {
	t.Parallel()
	short := base64.StdEncoding.EncodeToString(make([]byte, 31))
	long := base64.StdEncoding.EncodeToString(make([]byte, 33))
	for name, keys := range map[string][]string{
		"none": nil, "empty": {""}, "not base64": {"*not base64*"}, "short": {short}, "long": {long},
		"second": {masterKey(1), short},
	} {
		_, err := NewKeyring(keys)
		if err == nil {
			t.Errorf("%s is taken", name)
		} else if strings.Contains(err.Error(), short) || strings.Contains(err.Error(), "*not base64*") {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
	if _, err := NewKeyring([]string{" " + masterKey(1) + "\n", masterKey(1)}); err != nil {
		t.Errorf("the same key twice, with white space: %v", err)
	}
}

func TestKeyringPrintsNoKey(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte("k"), MasterKeyBytes)
	k := mustKeyring(t, base64.StdEncoding.EncodeToString(key))
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(format, k)
		if strings.Contains(text, "kkkk") || strings.Contains(text, "107") ||
			strings.Contains(text, base64.StdEncoding.EncodeToString(key)) {
			t.Errorf("%s: %s", format, text)
		}
	}
	sum := sha256.Sum256(key)
	if want := hex.EncodeToString(sum[:])[:8]; k.KeyID() != want {
		t.Errorf("key id %s, want %s", k.KeyID(), want)
	}
}

// A lane's secret depends on the signer as well. For standard-v1 it depends on the lane only, which must not
// change.
func TestLaneSecret(t *testing.T) {
	t.Parallel()
	root, lane := []byte("the project's secret"), "https://shop.example:443"
	for signer, text := range map[string]string{
		"standard-v1": lane, "hmac-sha256-body": "hmac-sha256-body\n" + lane,
		"sorted-kv": "sorted-kv\n" + lane,
	} {
		mac := hmac.New(sha256.New, root)
		mac.Write([]byte(text))
		if got := LaneSecret(root, signer, lane); !bytes.Equal(got, mac.Sum(nil)) {
			t.Errorf("of %s: %x", signer, got)
		}
	}
	of := LaneSecret(root, "standard-v1", lane)
	if bytes.Equal(of, LaneSecret(root, "standard-v1", "https://shop.example:444")) ||
		bytes.Equal(of, LaneSecret([]byte("other"), "standard-v1", lane)) {
		t.Error("another lane or another project has the same secret")
	}
}
