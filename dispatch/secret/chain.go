package secret

import "context"

// useAudit is the use of the key that the chain of the audit is made with. As with useCursor, no caller can
// read or rotate it.
const useAudit = "audit"

// AuditKey returns the key of the chain, which is the installation's. The first call makes it.
func (s *Secrets) AuditKey(ctx context.Context) ([]byte, error) {
	secrets, err := s.Project(ctx, "", useAudit, s.clock.Now())
	if err != nil {
		return nil, err
	}
	return secrets[0].Key, nil
}
