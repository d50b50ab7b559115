package sign

import (
	"bytes"
	"crypto"
	"crypto/hmac"
	"crypto/md5"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// A kvAlg is how sorted-kv signs.
type kvAlg string

const (
	algMD5  kvAlg = "md5"
	algHMAC kvAlg = "hmac-sha256"
	algRSA2 kvAlg = "rsa2"
)

// A putPlace is where sorted-kv puts the signature.
type putPlace string

const (
	putBody   putPlace = "body"
	putQuery  putPlace = "query"
	putHeader putPlace = "header"
)

// signTypeField is the field that says how the signature was made.
const signTypeField = "sign_type"

// kvOptions are those of sorted-kv.
type kvOptions struct {
	alg kvAlg
	// exclude are fields that are not signed; the one that the signature is put into never is.
	exclude []string
	// suffix joins the fields to the key.
	suffix string
	// lower: hex digits are in lower case. keepEmpty: empty fields are signed.
	lower, keepEmpty bool
	in               putPlace
	name             string
	// signType is the value of sign_type; empty: it is not put.
	signType string
	// nonce and time are the fields that are put among those that are signed, anew for each attempt; empty: they are not.
	nonce, time string
	timeFormat  kvTime
}

func defaultKV(alg kvAlg) kvOptions {
	o := kvOptions{alg: alg, exclude: []string{"sign"}, suffix: "&key=", in: putBody, name: "sign", timeFormat: timeUnix}
	if alg == algRSA2 {
		o.exclude, o.suffix = []string{"sign", signTypeField}, ""
	}
	return o
}

// kvSource finds the fields that are signed: the body's, or the query's of a request without a body.
func kvSource(contentType string, body []byte, query string) (*kvFields, error) {
	if len(body) > 0 {
		return readFields(contentType, body)
	}
	f, err := formFields(query)
	if err != nil {
		return nil, errors.New("the query has no fields that could be signed")
	}
	return f, nil
}

// plain returns what is signed: name=value of the fields, sorted by the bytes of their names and joined by &.
func (o *kvOptions) plain(fields []kvField) string {
	kept := make([]kvField, 0, len(fields))
	for _, f := range fields {
		if f.name != o.name && !slices.Contains(o.exclude, f.name) && (f.value != "" || o.keepEmpty) {
			kept = append(kept, f)
		}
	}
	slices.SortFunc(kept, func(a, b kvField) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	for i, f := range kept {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(f.name + "=" + f.value)
	}
	return b.String()
}

// digest returns the signature with a key that both sides have.
func (o *kvOptions) digest(plain string, key []byte) string {
	text := []byte(plain)
	if o.suffix != "" || o.alg == algMD5 {
		text = append(append(text, o.suffix...), key...)
	}
	var sum []byte
	if o.alg == algMD5 {
		s := md5.Sum(text) // what receivers of the last decades ask for
		sum = s[:]
	} else {
		mac := hmac.New(sha256.New, key)
		mac.Write(text)
		sum = mac.Sum(nil)
	}
	text = hex.AppendEncode(nil, sum)
	if !o.lower {
		text = bytes.ToUpper(text)
	}
	return string(text)
}

// signSHA256 returns the base64 of RSA-SHA256 (PKCS #1 v1.5).
func signSHA256(key *rsa.PrivateKey, text string) (string, error) {
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", &KeyError{"signing with the RSA key failed"}
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

// verifiesSHA256 says whether signSHA256 made the signature.
func verifiesSHA256(key *rsa.PublicKey, text, signature string) bool {
	raw, err := base64.StdEncoding.DecodeString(signature)
	sum := sha256.Sum256([]byte(text))
	return err == nil && rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], raw) == nil
}

// signSortedKV signs the request's fields, and those that are fresh, with its newest secret.
func (c *Cache) signSortedKV(s *signer, r *Request) (Signature, error) {
	o := &s.kv
	source, err := kvSource(r.ContentType, r.Body, r.URL.RawQuery)
	if err != nil {
		return Signature{}, err
	}
	if o.in == putBody && len(r.Body) == 0 {
		return Signature{}, errors.New("there is no body that the signature could be put into")
	}
	fresh := o.fresh(r.At)
	for _, f := range fresh {
		if source.has(f.name) {
			return Signature{}, fmt.Errorf("the request has a field %s already, which the signer adds", f.name)
		}
	}
	var added []kvField // beside the signature
	if o.signType != "" {
		added = append(added, kvField{signTypeField, o.signType})
	}
	if o.in != putHeader {
		beside := source
		if o.in == putQuery && len(r.Body) > 0 {
			if beside, err = formFields(r.URL.RawQuery); err != nil {
				return Signature{}, errors.New("the query is not one that a signature could be put into")
			}
		}
		if beside.has(o.name) || o.signType != "" && (beside.has(signTypeField) || source.has(signTypeField)) {
			return Signature{}, errors.New("the request has a signature's field already")
		}
	}
	value, err := c.digestKV(o, o.plain(slices.Concat(source.fields, fresh, added)), r.Secrets[0].Key)
	if err != nil {
		return Signature{}, err
	}
	added = append(added, kvField{o.name, value})
	out := Signature{KeyID: r.Secrets[0].ID, Hidden: []string{value, url.QueryEscape(value)}}
	inBody, inQuery := fresh, []kvField(nil)
	if len(r.Body) == 0 {
		inBody, inQuery = nil, fresh
	}
	switch o.in {
	case putHeader:
		out.Headers = []addedHeader{{o.name, value, true}}
	case putQuery:
		inQuery = append(inQuery, added...)
	default:
		inBody = append(inBody, added...)
	}
	if len(inBody) > 0 {
		out.Body = source.with(r.Body, inBody)
	}
	if len(inQuery) > 0 {
		query, _ := formFields(r.URL.RawQuery) // it was read before
		out.Query = string(query.with([]byte(r.URL.RawQuery), inQuery))
	}
	return out, nil
}

// digestKV signs by the options' algorithm.
func (c *Cache) digestKV(o *kvOptions, plain string, key []byte) (string, error) {
	if o.alg == algRSA2 {
		private, err := c.rsaKey(key)
		if err != nil {
			return "", err
		}
		return signSHA256(private, plain)
	}
	if err := checkText(UseText, key); err != nil {
		return "", &KeyError{"the signing secret is no text of 8 to 4096 printable characters"}
	}
	return o.digest(plain, key), nil
}
