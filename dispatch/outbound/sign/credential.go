package sign

import (
	"encoding/base64"
	"strings"
)

// basic sends a user and a password, bearer a token.
type (
	basic  struct{ noOptions }
	bearer struct{ noOptions }
)

func (*basic) use() string { return UseBasic }

func (*basic) sign(_ *Cache, r *Request) (Signature, error) {
	key := r.Secrets[0].Key
	if checkText(UseBasic, key) != nil {
		return Signature{}, &KeyError{`the signing secret is not of the form "user:password"`}
	}
	user, password, _ := strings.Cut(string(key), ":")
	if password == "" {
		password = user
	}
	return authorization("Basic", base64.StdEncoding.EncodeToString(key), r.Secrets[0].ID, string(key), password), nil
}

func (*basic) verify(a *arrival) error {
	return a.verifyAuthorization(func(key []byte) string { return "Basic " + base64.StdEncoding.EncodeToString(key) })
}

func (*bearer) use() string { return UseText }

func (*bearer) sign(_ *Cache, r *Request) (Signature, error) {
	key := r.Secrets[0].Key
	if checkText(UseText, key) != nil {
		return Signature{}, &KeyError{"the token is no text of 8 to 4096 printable characters"}
	}
	return authorization("Bearer", string(key), r.Secrets[0].ID), nil
}

func (*bearer) verify(a *arrival) error {
	return a.verifyAuthorization(func(key []byte) string { return "Bearer " + string(key) })
}

// authorization puts a credential into Authorization; more are other spellings of it that must not be shown either.
func authorization(scheme, credential, id string, more ...string) Signature {
	return Signature{
		Headers: []AddedHeader{{"Authorization", scheme + " " + credential, true}},
		Hidden:  append(more, credential),
		KeyID:   id,
	}
}

func (a *arrival) verifyAuthorization(want func(key []byte) string) error {
	got, err := a.need("Authorization")
	if err != nil {
		return err
	}
	return a.with(func(key []byte) (bool, error) { return matches(got[0], want(key)), nil })
}
