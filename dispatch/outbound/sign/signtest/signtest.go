// Package signtest has all signers, and secrets for them, for tests.
package signtest

import (
	"encoding/base64"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// Shortest returns a secret of UseHMAC of the minimum length.
func Shortest() []byte { return []byte("0123456789abcdefghijklmn") }

// Secrets returns secrets without IDs. The first key is the current one.
func Secrets(keys ...[]byte) []sign.Secret {
	secrets := make([]sign.Secret, len(keys))
	for i, key := range keys {
		secrets[i].Key = key
	}
	return secrets
}

// rsaKeys are generated once, because that is slow.
var rsaKeys = sync.OnceValue(func() (keys [2][]byte) {
	for i := range keys {
		var err error
		keys[i], err = sign.NewSecret(sign.UseRSA)
		if err != nil {
			panic(err)
		}
	}
	return keys
})

// UseOf returns the use of a signer's secrets.
func UseOf(t testing.TB, signer string) string {
	t.Helper()
	use, err := sign.UseOf(signer)
	if err != nil {
		t.Fatal(err)
	}
	return use
}

// Secret returns a secret of a use. The same n gives the same secret.
func Secret(t testing.TB, use string, n byte) []byte {
	t.Helper()
	letter := string(rune('a' + n))
	if use == sign.UseRSA {
		return rsaKeys()[n%2]
	}
	text := map[string]string{
		sign.UseHMAC:    sign.FormatSecret([]byte(strings.Repeat(letter, sign.MinSecretBytes))),
		sign.UseEd25519: "whsk_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32))),
		sign.UseText:    "hunter2-key-" + letter,
		sign.UseBasic:   "user-" + letter + ":hunter2-" + letter,
	}[use]
	key, err := sign.ParseSecretFor(use, text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Every has each signer, and each option that changes what is signed or where the signature goes.
var Every = []string{
	"", "standard-v1", "standard-v1a", "hmac-sha256-body",
	`{"type":"hmac-sha256-body","header":"X-Shopify-Hmac-Sha256","prefix":"","encoding":"base64"}`,
	`{"type":"hmac-sha256-body","rotation_header":"","key":"written"}`, "t-v1",
	`{"type":"t-v1","header":"Stripe-Signature","key":"written"}`,
	"sorted-kv", `{"type":"sorted-kv","alg":"md5","sign_type":"MD5"}`,
	`{"type":"sorted-kv","alg":"md5","key_suffix":"","case":"lower","put":{"in":"query","name":"sig"}}`,
	`{"type":"sorted-kv","alg":"rsa2","sign_type":"RSA2"}`,
	`{"type":"sorted-kv","alg":"rsa2","sign_type":"RSA2","exclude":["sign"],"put":{"in":"query"}}`,
	`{"type":"sorted-kv","key_suffix":"","skip_empty":false,"put":{"in":"header","name":"X-Sign"}}`,
	`{"type":"sorted-kv","alg":"md5","sign_type":"MD5","nonce":"nonce_str","time":"ts"}`,
	`{"type":"sorted-kv","alg":"rsa2","exclude":["sign","n"],"put":{"in":"query"},"sign_type":"RSA2",` +
		`"nonce":"n","time":"timestamp","time_format":"datetime"}`,
	`{"type":"sorted-kv","put":{"in":"header","name":"X-Sign"},"nonce":"n","time":"t",` +
		`"time_format":"unix_ms"}`,
	"wechat-v3-rsa", `{"type":"wechat-v3-rsa","mchid":"1900009191"}`, "basic", "bearer",
}
