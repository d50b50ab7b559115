package cmdtest

import (
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// SigningKey returns one of two keys of a use.
func SigningKey(t *testing.T, use string, n int) []byte {
	t.Helper()
	switch use {
	case sign.UseRSA:
		return RsaPair()[n]
	case sign.UseBasic:
		return []byte([]string{"shop:hunter22", "shop:hunter11"}[n])
	}
	key, err := sign.NewSecret(use)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// ReceiversForm is how a receiver is given a key: the public one of a pair, else the secret.
func ReceiversForm(t *testing.T, use string, key []byte) string {
	t.Helper()
	public, err := sign.PublicOf(use, key)
	if err != nil {
		t.Fatal(err)
	}
	if public != "" {
		return public
	}
	return sign.FormatSecretFor(use, key)
}

// RsaPair are two keys that are made once: it takes a while.
var RsaPair = sync.OnceValue(func() (keys [2][]byte) {
	for i := range keys {
		var err error
		if keys[i], err = sign.NewSecret(sign.UseRSA); err != nil {
			panic(err)
		}
	}
	return keys
})
