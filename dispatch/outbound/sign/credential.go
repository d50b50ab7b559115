package sign

import (
	"cmp"
	"encoding/base64"
	"strings"
)

// sendsSecret returns the constructor of a signer that sends its secret itself in Authorization: a user and a
// password in base64, or a token.
func sendsSecret(scheme, use string) func() options {
	value := func(key []byte) string { return scheme + " " + string(key) }
	problem := "the token must have 8 to 4096 printable characters without spaces"
	if use == UseBasic {
		value = func(key []byte) string { return scheme + " " + base64.StdEncoding.EncodeToString(key) }
		problem = `the signing secret must have the form "user:password"`
	}
	return simply(use, func(r *Request) (Signature, error) {
		key := r.Secrets[0].Key
		if checkText(use, key) != nil {
			return Signature{}, &KeyError{problem}
		}
		sent := value(key)
		out := Signature{
			Headers: []AddedHeader{{"Authorization", sent, true}}, KeyID: r.Secrets[0].ID,
			Hidden: []string{sent[len(scheme)+1:]},
		}
		if use == UseBasic { // a receiver may echo it decoded
			user, password, _ := strings.Cut(string(key), ":")
			out.Hidden = append(out.Hidden, string(key), cmp.Or(password, user))
		}
		return out, nil
	}, func(in *receivedRequest) error {
		got, err := in.requireHeaders("Authorization")
		if err != nil {
			return err
		}
		return in.verifyAny(func(key []byte) (bool, error) { return matches(got[0], value(key)), nil })
	})
}
