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
	// previousSuffix is added to the signature's header for the signature of the previous secret.
	previousSuffix = "-Previous"
)

// macKey selects the HMAC key: the secret's bytes or its written form "whsec_…".
type macKey string

const (
	keyBytes   macKey = "bytes"
	keyWritten macKey = "written"
)

// sum returns the HMAC-SHA256 of the parts with the selected key.
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

// bodyMAC is the signer hmac-sha256-body.
type bodyMAC struct {
	Type     string     `json:"type" most:"64"`
	Header   headerName `json:"header"`
	Prefix   headerText `json:"prefix" empty:"ok"`
	Encoding string     `json:"encoding" choice:"hex base64"`
	// Rotation is the header for the previous secret's signature. Empty means that it is not sent.
	Rotation headerName `json:"rotation_header" empty:"ok"`
	Key      macKey     `json:"key" choice:"bytes written"`
}

func newBodyMAC() options {
	return &bodyMAC{
		Type: HMACBody, Header: defaultBodyHeader, Prefix: "sha256=", Encoding: "hex",
		Rotation: defaultBodyHeader + previousSuffix, Key: keyBytes,
	}
}

// defaults returns the defaults. The default of rotation_header depends on header.
func (s *bodyMAC) defaults() options {
	d := newBodyMAC().(*bodyMAC)
	d.Rotation = s.Header + previousSuffix
	return d
}

// CheckSetting derives rotation_header from header unless it is given. Both must differ.
func (s *bodyMAC) CheckSetting(v parse.Setting) {
	if !v.Has("rotation_header") {
		s.Rotation = s.Header + previousSuffix
	}
	if s.Rotation != "" && strings.EqualFold(string(s.Rotation), string(s.Header)) {
		v.In("rotation_header").Fail("must differ from header")
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

// sign puts the current secret's signature into Header. During a rotation it puts the previous secret's into
// Rotation, so that a receiver can verify with either secret.
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

// verify accepts a signature in either header: during a rotation the receiver has one of the two secrets.
func (s *bodyMAC) verify(in *receivedRequest) error {
	present, err := in.requireHeaders(string(s.Header))
	if err != nil {
		return err
	}
	return in.verifyAny(func(key []byte) (bool, error) {
		want := s.value(key, in.body)
		return matches(present[0], want) || s.Rotation != "" &&
			matches(in.header.Get(string(s.Rotation)), want), nil
	})
}

// timestampedMAC is the signer t-v1.
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

// sign puts the timestamp and one v1 for each secret into the header, so a receiver can verify with any of
// them.
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

// verify accepts any v1 of the header that matches, if the timestamp is within the tolerance.
func (s *timestampedMAC) verify(in *receivedRequest) error {
	var seconds string
	var macs []string
	for part := range strings.SplitSeq(in.header.Get(string(s.Header)), ",") {
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
	if err := in.checkSeconds(seconds, string(s.Header)); err != nil {
		return err
	}
	return in.verifyAny(func(key []byte) (bool, error) {
		want := s.value(key, seconds, in.body)
		for _, mac := range macs {
			if matches(mac, want) {
				return true, nil
			}
		}
		return false, nil
	})
}
