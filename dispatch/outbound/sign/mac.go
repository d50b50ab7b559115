package sign

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

const (
	defaultBodyHeader        = "X-Signature-256"
	defaultTimestampedHeader = "X-Signature"
	// previousSuffix makes the header of the former secret's signature out of that of the present one's.
	previousSuffix = "-Previous"
)

// macKey is what the key of an HMAC is: the secret's bytes, or how it is written.
type macKey string

const (
	keyBytes   macKey = "bytes"
	keyWritten macKey = "written"
)

func (k macKey) sum(key []byte, parts ...[]byte) []byte {
	if k == keyWritten {
		key = []byte(FormatSecret(key))
	}
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// bodyMAC is hmac-sha256-body.
type bodyMAC struct {
	Type     string     `json:"type" most:"64"`
	Header   headerName `json:"header"`
	Prefix   headerText `json:"prefix" empty:"ok"`
	Encoding string     `json:"encoding" choice:"hex base64"`
	// Rotation is the header of the former secret's signature; empty: it is not sent.
	Rotation headerName `json:"rotation_header" empty:"ok"`
	Key      macKey     `json:"key" choice:"bytes written"`
}

func newBodyMAC() options {
	return &bodyMAC{
		Type: HMACBody, Header: defaultBodyHeader, Prefix: "sha256=", Encoding: "hex",
		Rotation: defaultBodyHeader + previousSuffix, Key: keyBytes,
	}
}

// defaults has the rotation header that follows from the header.
func (s *bodyMAC) defaults() options {
	d := newBodyMAC().(*bodyMAC)
	d.Rotation = s.Header + previousSuffix
	return d
}

// CheckSetting names the header of rotations after the other, unless it is given.
func (s *bodyMAC) CheckSetting(v parse.Setting) {
	if !v.Has("rotation_header") {
		s.Rotation = s.Header + previousSuffix
	}
	if s.Rotation != "" && strings.EqualFold(string(s.Rotation), string(s.Header)) {
		v.In("rotation_header").Fail("is another one than header")
	}
}

func (*bodyMAC) use() string { return UseHMAC }

func (s *bodyMAC) value(key, body []byte) string {
	sum := s.Key.sum(key, body)
	if s.Encoding == "base64" {
		return string(s.Prefix) + base64.StdEncoding.EncodeToString(sum)
	}
	return string(s.Prefix) + hex.EncodeToString(sum)
}

// sign has room for one signature in its header: that of the present secret. During a rotation that of the
// one before is in a header of its own, so that a receiver can verify with either.
func (s *bodyMAC) sign(_ *Cache, r *Request) (Signature, error) {
	var out Signature
	for i, header := range []headerName{s.Header, s.Rotation} {
		if i == len(r.Secrets) || header == "" {
			break
		}
		value := s.value(r.Secrets[i].Key, r.Body)
		out.Headers = append(out.Headers, AddedHeader{string(header), value, true})
		out.Hidden = append(out.Hidden, value)
		out.KeyID = keyIDs(r.Secrets[:i+1])
	}
	return out, nil
}

// verify looks at both headers: during a rotation the receiver has the one secret or the other.
func (s *bodyMAC) verify(a *arrival) error {
	present, err := a.need(string(s.Header))
	if err != nil {
		return err
	}
	return a.with(func(key []byte) (bool, error) {
		want := s.value(key, a.body)
		return matches(present[0], want) || s.Rotation != "" &&
			matches(a.header.Get(string(s.Rotation)), want), nil
	})
}

// timestampedMAC is t-v1.
type timestampedMAC struct {
	Type   string     `json:"type" most:"64"`
	Header headerName `json:"header"`
	Key    macKey     `json:"key" choice:"bytes written"`
}

func newTimestampedMAC() options {
	return &timestampedMAC{Type: Timestamped, Header: defaultTimestampedHeader, Key: keyBytes}
}

func (*timestampedMAC) defaults() options { return newTimestampedMAC() }

func (*timestampedMAC) use() string { return UseHMAC }

func (s *timestampedMAC) value(key []byte, seconds string, body []byte) string {
	return hex.EncodeToString(s.Key.sum(key, []byte(seconds+"."), body))
}

func (s *timestampedMAC) sign(_ *Cache, r *Request) (Signature, error) {
	value := "t=" + r.Seconds
	for i := range r.Secrets {
		value += ",v1=" + s.value(r.Secrets[i].Key, r.Seconds, r.Body)
	}
	return Signature{
		Headers: []AddedHeader{{string(s.Header), value, true}}, KeyID: keyIDs(r.Secrets),
		Hidden: []string{value},
	}, nil
}

func (s *timestampedMAC) verify(a *arrival) error {
	var seconds string
	var macs []string
	for part := range strings.SplitSeq(a.header.Get(string(s.Header)), ",") {
		switch name, v, _ := strings.Cut(part, "="); name {
		case "t":
			seconds = v
		case "v1":
			macs = append(macs, v)
		}
	}
	if seconds == "" || len(macs) == 0 {
		return fmt.Errorf("%w: %s is missing or has no t or v1", ErrHeaders,
			strings.ToLower(string(s.Header)))
	}
	if err := a.checkSeconds(seconds, string(s.Header)); err != nil {
		return err
	}
	return a.with(func(key []byte) (bool, error) {
		want := s.value(key, seconds, a.body)
		for _, mac := range macs {
			if matches(mac, want) {
				return true, nil
			}
		}
		return false, nil
	})
}
