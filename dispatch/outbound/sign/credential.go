package sign

import (
	"cmp"
	"encoding/base64"
	"strings"
)

// sends is a signer that sends its secret itself, in Authorization: a user and a password in base64, or a
// token.
func sends(scheme, use string) func() options {
	value := func(key []byte) string { return scheme + " " + string(key) }
	fault := "the token is no text of 8 to 4096 printable characters"
	if use == UseBasic {
		value = func(key []byte) string { return scheme + " " + base64.StdEncoding.EncodeToString(key) }
		fault = `the signing secret is not of the form "user:password"`
	}
	return plainly(use, func(r *Request) (Signature, error) {
		key := r.Secrets[0].Key
		if checkText(use, key) != nil {
			return Signature{}, &KeyError{fault}
		}
		sent := value(key)
		out := Signature{
			Headers: []AddedHeader{{"Authorization", sent, true}}, KeyID: r.Secrets[0].ID,
			Hidden: []string{sent[len(scheme)+1:]},
		}
		if use == UseBasic { // also as a receiver would write it
			user, password, _ := strings.Cut(string(key), ":")
			out.Hidden = append(out.Hidden, string(key), cmp.Or(password, user))
		}
		return out, nil
	}, func(a *arrival) error {
		got, err := a.need("Authorization")
		if err != nil {
			return err
		}
		return a.with(func(key []byte) (bool, error) { return matches(got[0], value(key)), nil })
	})
}
