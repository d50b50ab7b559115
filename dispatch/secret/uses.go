package secret

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// A ShownSecret is a signing secret as its receiver is given it.
type ShownSecret struct {
	// ID names it in attempts. Label is what receivers know it by; mostly empty.
	ID, Label, Use string
	Secret         string
	// Public is what receivers verify with, where that is not the secret itself.
	Public string
	// Hosts are where it may be used beside its endpoint's own host.
	Hosts []string
}

func Shown(use string, s *sign.Secret) (ShownSecret, error) {
	public, err := sign.PublicOf(use, s.Key)
	if err != nil {
		return ShownSecret{}, fmt.Errorf("show a secret: %w", err)
	}
	return ShownSecret{
		ID: s.ID, Label: s.Label, Use: use, Secret: sign.FormatSecretFor(use, s.Key), Public: public, Hosts: s.Hosts,
	}, nil
}

func UsesText() string { return strings.Join(sign.Uses(), ", ") }

// NewKey reads a secret, or makes one.
func NewKey(use, text string) ([]byte, error) {
	switch {
	case text != "" && use == UseRoot:
		return sign.ParseSecretFor(sign.UseHMAC, text)
	case text != "":
		return sign.ParseSecretFor(use, text)
	case use != UseRoot && use != useCursor && use != useAudit:
		return sign.NewSecret(use)
	}
	key := make([]byte, secretSize)
	_, err := rand.Read(key)
	return key, err
}
