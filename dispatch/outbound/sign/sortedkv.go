package sign

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// How sorted-kv signs, and where it puts the signature.
const (
	algMD5  = "md5"
	algHMAC = "hmac-sha256"
	algRSA2 = "rsa2"

	putBody   = "body"
	putQuery  = "query"
	putHeader = "header"
)

// signTypeField is the field that says how the signature was made.
const signTypeField = "sign_type"

// A kvTime is how sorted-kv writes the time of an attempt.
type kvTime string

const (
	timeUnix     kvTime = "unix"
	timeUnixMS   kvTime = "unix_ms"
	timeDateTime kvTime = "datetime"
)

// sortedKV is sorted-kv.
type sortedKV struct {
	Type string `json:"type" most:"64"`
	Alg  string `json:"alg" choice:"md5 hmac-sha256 rsa2"`
	// Exclude are fields that are not signed; the one that the signature is put into never is.
	Exclude []excluded `json:"exclude" most:"50" empty:"ok"`
	// KeySuffix joins the fields to the key.
	KeySuffix hashOption `json:"key_suffix" most:"64" empty:"ok"`
	Case      hashOption `json:"case" choice:"upper lower"`
	SkipEmpty bool       `json:"skip_empty"`
	Put       kvPut      `json:"put"`
	// SignType is the value of sign_type; empty: it is not put.
	SignType fieldText `json:"sign_type" empty:"ok"`
	// Nonce and Time are the fields that are put among those that are signed, anew for each attempt; empty:
	// they are not.
	Nonce      fieldText `json:"nonce" empty:"ok"`
	Time       fieldText `json:"time" empty:"ok"`
	TimeFormat kvTime    `json:"time_format" choice:"unix unix_ms datetime"`
}

// A kvPut says where the signature goes.
type kvPut struct {
	In   string    `json:"in" choice:"body query header"`
	Name fieldText `json:"name"`
}

// An excluded is the name of a field. A hashOption goes with signatures whose key both sides have.
type (
	excluded   string
	hashOption string
)

func newSortedKV(alg string) *sortedKV {
	o := &sortedKV{
		Type: SortedKV, Alg: alg, Exclude: []excluded{"sign"}, KeySuffix: "&key=", Case: "upper",
		SkipEmpty: true,
		Put:       kvPut{putBody, "sign"}, TimeFormat: timeUnix,
	}
	if alg == algRSA2 {
		o.Exclude, o.KeySuffix = []excluded{"sign", signTypeField}, ""
	}
	return o
}

func newDefaultSortedKV() options { return newSortedKV(algHMAC) }

// defaults are those of the algorithm, which is told unless it is the default one.
func (o *sortedKV) defaults() options {
	d := newSortedKV(o.Alg)
	d.Alg = algHMAC
	return d
}

// ReadSetting reads a name.
func (e *excluded) ReadSetting(s parse.Setting) {
	name, _ := s.Text(maxText)
	*e = excluded(name)
}

// ReadSetting reads an option that rsa2 has not.
func (o *hashOption) ReadSetting(s parse.Setting) {
	if s.Shared == algRSA2 {
		s.Fail("does not go with rsa2: no key is appended, and its signature is in base64")
		return
	}
	s.Into((*string)(o))
}

// CheckSetting looks at the name that a header has.
func (p *kvPut) CheckSetting(s parse.Setting) {
	if p.In == putHeader && p.Name != "" && headerName(p.Name).fault() != "" {
		s.In("name").Fail("is no header that can be set")
	}
}

// CheckSetting judges the names of the fields that are put into the request.
func (o *sortedKV) CheckSetting(s parse.Setting) {
	if o.SignType != "" && o.Put.In == putHeader {
		s.In("sign_type").Fail("goes beside a signature in body or query only")
	}
	if o.SignType != "" && o.Put.Name == signTypeField {
		s.In("put").In("name").Fail("is where sign_type goes")
	}
	for _, f := range [...]struct {
		at   string
		name fieldText
	}{{"nonce", o.Nonce}, {"time", o.Time}} {
		switch f.name {
		case "":
		case o.Put.Name:
			s.In(f.at).Fail("is where the signature goes")
		case signTypeField:
			s.In(f.at).Fail("is where sign_type goes")
		}
	}
	if o.Nonce != "" && o.Nonce == o.Time {
		s.In("time").Fail("is where nonce goes")
	}
	if !s.Failed() && o.Time == "" && o.TimeFormat != timeUnix {
		s.In("time_format").Fail("goes with time only")
	}
}

func (o *sortedKV) use() string {
	if o.Alg == algRSA2 {
		return UseRSA
	}
	return UseText
}

// sign signs the request's fields, and those that are fresh, with its newest secret.
func (o *sortedKV) sign(c *Cache, r *Request) (Signature, error) {
	source, err := kvSource(r.ContentType, r.Body, r.URL.RawQuery)
	if err != nil {
		return Signature{}, err
	}
	if o.Put.In == putBody && len(r.Body) == 0 {
		return Signature{}, errors.New("there is no body that the signature could be put into")
	}
	fresh := o.fresh(r.At)
	for _, f := range fresh {
		if source.has(f.name) {
			return Signature{}, fmt.Errorf("the request has a field %s already, which the signer adds",
				f.name)
		}
	}
	var added []kvField // beside the signature
	if o.SignType != "" {
		added = append(added, kvField{signTypeField, string(o.SignType)})
	}
	if o.Put.In != putHeader {
		beside := source
		if o.Put.In == putQuery && len(r.Body) > 0 {
			beside, err = formFields(r.URL.RawQuery)
			if err != nil {
				return Signature{}, errors.New("the query is not one that a signature could be put into")
			}
		}
		if beside.has(string(o.Put.Name)) || o.SignType != "" &&
			(beside.has(signTypeField) || source.has(signTypeField)) {
			return Signature{}, errors.New("the request has a signature's field already")
		}
	}
	value, err := c.digestKV(o, o.plain(slices.Concat(source.fields, fresh, added)), r.Secrets[0].Key)
	if err != nil {
		return Signature{}, err
	}
	added = append(added, kvField{string(o.Put.Name), value})
	out := Signature{KeyID: r.Secrets[0].ID, Hidden: []string{value, url.QueryEscape(value)}}
	inBody, inQuery := fresh, []kvField(nil)
	if len(r.Body) == 0 {
		inBody, inQuery = nil, fresh
	}
	switch o.Put.In {
	case putHeader:
		out.Headers = []AddedHeader{{string(o.Put.Name), value, true}}
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
func (c *Cache) digestKV(o *sortedKV, plain string, key []byte) (string, error) {
	if o.Alg == algRSA2 {
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
func (o *sortedKV) plain(fields []kvField) string {
	kept := make([]kvField, 0, len(fields))
	for _, f := range fields {
		if f.name != string(o.Put.Name) && !slices.Contains(o.Exclude, excluded(f.name)) &&
			(f.value != "" || !o.SkipEmpty) {
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
func (o *sortedKV) digest(plain string, key []byte) string {
	text := []byte(plain)
	if o.KeySuffix != "" || o.Alg == algMD5 {
		text = append(append(text, o.KeySuffix...), key...)
	}
	var sum []byte
	if o.Alg == algMD5 {
		s := md5.Sum(text) // what receivers of the last decades ask for
		sum = s[:]
	} else {
		sum = keyBytes.sum(key, text)
	}
	text = hex.AppendEncode(nil, sum)
	if o.Case != "lower" {
		text = bytes.ToUpper(text)
	}
	return string(text)
}

// verify looks for the signature where the options put it.
func (o *sortedKV) verify(a *arrival) error {
	source, err := kvSource(a.header.Get("Content-Type"), a.body, a.url.RawQuery)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSignature, err)
	}
	fields, name := source.fields, string(o.Put.Name)
	var signature string
	switch o.Put.In {
	case putHeader:
		signature = a.header.Get(name)
	case putQuery:
		query, err := formFields(a.url.RawQuery)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrSignature, err)
		}
		signature = query.value(name)
		if o.SignType != "" && len(a.body) > 0 {
			fields = append(fields, kvField{signTypeField, query.value(signTypeField)})
		}
	default:
		signature = source.value(name)
	}
	if signature == "" {
		return fmt.Errorf("%w: no %s in the %s", ErrHeaders, name, o.Put.In)
	}
	plain := o.plain(fields)
	if o.Alg == algRSA2 {
		return a.verifyRSA(plain, signature)
	}
	return a.with(func(key []byte) (bool, error) { return matches(signature, o.digest(plain, key)), nil })
}

// chinaTime is UTC+8, all year round: what the platforms that take a datetime mean by it.
var chinaTime = time.FixedZone("UTC+8", 8*60*60)

// fresh returns the fields that are made anew for each attempt. Their values need no escapes but those of a
// form.
func (o *sortedKV) fresh(now time.Time) []kvField {
	var fields []kvField
	if o.Nonce != "" {
		fields = append(fields, kvField{string(o.Nonce), newNonce()})
	}
	if o.Time != "" {
		fields = append(fields, kvField{string(o.Time), o.TimeFormat.text(now)})
	}
	return fields
}

func (f kvTime) text(at time.Time) string {
	switch f {
	case timeUnixMS:
		return strconv.FormatInt(at.UnixMilli(), 10)
	case timeDateTime:
		return at.In(chinaTime).Format(time.DateTime)
	}
	return strconv.FormatInt(at.Unix(), 10)
}

const (
	nonceLetters = "abcdefghijklmnopqrstuvwxyz0123456789"
	nonceLen     = 32 // as long as WeChat Pay takes one
)

// newNonce returns random lower-case letters and digits, each as likely as any other.
func newNonce() string {
	const fair = 256 - 256%len(nonceLetters) // bytes from here on would favour the first letters
	var raw [2 * nonceLen]byte
	nonce := make([]byte, 0, nonceLen)
	for {
		_, _ = rand.Read(raw[:]) // it never fails
		for _, b := range raw {
			if int(b) >= fair {
				continue
			}
			nonce = append(nonce, nonceLetters[int(b)%len(nonceLetters)])
			if len(nonce) == nonceLen {
				return string(nonce)
			}
		}
	}
}
