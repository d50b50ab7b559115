package config

import (
	"crypto/rand"
	"encoding/base64"
)

// The files in the data directory that hold keys, and the prefix by which people know an API key.
const (
	AdminKeyFile  = "admin.key"
	MasterKeyFile = "master.key"
	APIKeyPrefix  = "dk_"
)

// NewAdminKey and newMasterKey make a key.
func NewAdminKey() string  { return APIKeyPrefix + randomText(24, base64.RawURLEncoding) }
func NewMasterKey() string { return randomText(MasterKeyBytes, base64.StdEncoding) }

// randomText returns n random bytes in the encoding.
func randomText(n int, encoding *base64.Encoding) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return encoding.EncodeToString(b)
}
