package secret

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A ciphertext is bound to its row: moved to another row, project, owner or use it cannot be decrypted. The
// bind functions return that binding, the additional data of Keyring.Seal and Open.

func bindSecret(s *store.Secret) string {
	return binding(append([]string{"secret", s.Project, s.Owner, s.Use, s.ID}, s.Hosts...)...)
}

func bindHeader(project, owner, name string) string {
	return binding("header", project, owner, strings.ToLower(name))
}

// BindTemplate returns the binding of a schedule's template.
func BindTemplate(project, schedule string) string { return binding("template", project, schedule) }

// BindSink returns what the ciphertext of an alert's sink is bound to.
func BindSink(project, alert string) string { return binding("sink", project, alert) }

// binding joins parts. No part contains a NUL.
func binding(parts ...string) string { return strings.Join(parts, "\x00") }

// CallbackOwner returns the owner of a callback's sealed headers, by the callback's bare id.
func CallbackOwner(id string) string { return store.CallbackPrefix + id }

// EndpointOwner returns the owner of an endpoint's sealed headers, by the endpoint's bare id.
func EndpointOwner(id string) string { return store.EndpointPrefix + id }

// ProjectOwner is the owner of a project's default headers.
const ProjectOwner = "project"

// SealText encrypts a text with the current key, for a column or a header that contains text.
func (k *Keyring) SealText(bound, plain string) string {
	keyID, ciphertext := k.Seal(bound, []byte(plain))
	return store.SealedText(keyID, base64.RawStdEncoding.EncodeToString(ciphertext))
}

// OpenText decrypts a result of SealText. Its error is ErrUnknownKey or ErrTampered.
func (k *Keyring) OpenText(bound, sealed string) (string, error) {
	keyID, text, _ := store.CutSealed(sealed)
	ciphertext, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return "", fmt.Errorf("open: %w", ErrTampered)
	}
	plain, err := k.Open(bound, keyID, ciphertext)
	return string(plain), err
}

// SealHeaders returns headers with credentials encrypted for their owner and for the host of url. With an
// empty url they are valid at any host of the owner. A sealed header stays as it is. The given slice is not
// changed.
func (k *Keyring) SealHeaders(project, owner, url string, headers []store.Header) []store.Header {
	if !store.HasCredentials(headers) {
		return headers
	}
	host, err := store.AddressLane(url)
	if err != nil {
		host = ""
	}
	sealed := make([]store.Header, len(headers))
	for i, h := range headers {
		if h.Sealed() == "" && store.IsCredentialHeader(h.Name) {
			h = store.SealedHeader(h.Name, k.SealText(bindHeader(project, owner, h.Name), host+"\n"+h.Value))
		}
		sealed[i] = h
	}
	return sealed
}

// OpenHeaders returns headers with credentials decrypted. It leaves out those that were sealed for another
// host than that of url. Its error is ErrUnknownKey or ErrTampered.
func (k *Keyring) OpenHeaders(project, owner, url string, headers []store.Header) ([]store.Header, error) {
	if store.SealedKey(headers) == "" {
		return headers, nil
	}
	opened := make([]store.Header, 0, len(headers))
	for _, h := range headers {
		if text := h.Sealed(); text != "" {
			of, sealed := CutOwner(text, owner)
			plain, err := k.OpenText(bindHeader(project, of, h.Name), sealed)
			if err != nil {
				return nil, fmt.Errorf("header %s of %s: %w", h.Name, of, err)
			}
			host, value, _ := strings.Cut(plain, "\n")
			if host != "" && !store.SameHost(host, url) {
				continue
			}
			h = store.Header{Name: h.Name, Value: value}
		}
		opened = append(opened, h)
	}
	return opened, nil
}

// SealResult is SealHeaders for the result callback of a poll, which the store creates when the poll ends.
// The callback has no id before that. So the poll is the owner, and its name follows the ciphertext.
func (k *Keyring) SealResult(project, poll, url string, headers []store.Header) []store.Header {
	owner := CallbackOwner(poll)
	sealed := k.SealHeaders(project, owner, url, headers)
	for i := range sealed {
		if sealed[i].Sealed() != "" {
			sealed[i].Value += ":" + owner
		}
	}
	return sealed
}

// CutOwner returns the owner that a value was sealed for, and the value without that name. The owner is that
// of the row unless the value names another.
func CutOwner(sealed, owner string) (of, value string) {
	if at := strings.LastIndexByte(sealed, ':'); at > strings.IndexByte(sealed, ':') {
		return sealed[at+1:], sealed[:at]
	}
	return owner, sealed
}
