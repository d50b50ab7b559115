package control

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// linkCiphers returns the ciphers of two installations.
func linkCiphers(t testing.TB) (own, other cipher.AEAD) {
	t.Helper()
	made := make([]cipher.AEAD, 2)
	for i := range made {
		block, err := aes.NewCipher([]byte(strings.Repeat(string(rune('a'+i)), 32)))
		if err != nil {
			t.Fatal(err)
		}
		made[i], err = cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			t.Fatal(err)
		}
	}
	return made[0], made[1]
}

var wholeLink = ViewLink{
	Project: "shop", EndpointID: "01JD6QZ0000000000000000007", ExpiresAt: 1_794_000_000_000, Version: 3,
	Resend: true, Embed: []string{"https://portal.example"}, Language: "zh-CN",
}

func TestLinkToken(t *testing.T) {
	t.Parallel()
	own, other := linkCiphers(t)
	token, err := sealViewLink(own, &wholeLink)
	if err != nil {
		t.Fatal(err)
	}
	again, err := sealViewLink(own, &wholeLink)
	if err != nil || again == token {
		t.Errorf("two links have one token: %v", err)
	}
	if got, ok := openViewLink(own, token); !ok || !cmp.Equal(got, wholeLink) {
		t.Errorf("%v: %s", ok, cmp.Diff(wholeLink, got))
	}
	for _, secret := range []string{"shop", wholeLink.EndpointID, "portal"} {
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || strings.Contains(string(raw), secret) {
			t.Errorf("the token shows %q", secret)
		}
	}
	if _, ok := openViewLink(other, token); ok {
		t.Error("another installation opens the token")
	}
	foreign := base64.RawURLEncoding.EncodeToString(own.Seal(nil, nil, []byte(`{"p":"shop"}`), []byte("x")))
	for _, text := range []string{
		"", foreign, token + "A", token + "\n", token + "=", token[:len(token)-1], token[1:],
		strings.Repeat("A", 100), strings.Repeat("A", 1<<20), strings.ToLower(token), "%00", "../" + token,
	} {
		if link, ok := openViewLink(own, text); ok {
			t.Errorf("%.60q opens %+v", text, link)
		}
	}
	for i := range token {
		changed := []byte(token)
		changed[i] ^= 1
		if link, ok := openViewLink(own, string(changed)); ok {
			t.Fatalf("with another byte %d it opens %+v", i, link)
		}
	}
}

// FuzzLinkToken checks that no text opens a link, except the one of sealViewLink.
func FuzzLinkToken(f *testing.F) {
	own, _ := linkCiphers(f)
	token, err := sealViewLink(own, &wholeLink)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"", "A", token, token[:40], token + token, strings.Repeat("_", 64)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if link, ok := openViewLink(own, text); ok != (text == token) {
			t.Errorf("%q: %v, %+v", text, ok, link)
		}
	})
}

func TestLinkOrigins(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"https://portal.example": true, "https://portal.example:8443": true, "http://127.0.0.1:9090": true,
		"https://xn--fiq228c.example": true, "HTTPS://portal.example": false, "https://": false,
		"https://portal.example/": false, "https://portal.example/a": false, "https://portal.example?": false,
		"https://a.example https://b.example": false, "https://a.example;script-src *": false,
		"https://*.example": false, "https://*": false, "*": false, "null": false, "": false, "'self'": false,
		"https://u@portal.example": false, "https://portal.example:": false, "https://portal.example:0": false,
		"https://portal.example:x": false, "ftp://portal.example": false, "https://中国.example": false,
		"https://a.example\r\nX: y": false, "https://a.example,https://b.example": false,
		"https://[::1]": false, "https://" + strings.Repeat("a", 200): false, "https://a.example#": false,
	} {
		if got := isOrigin(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
