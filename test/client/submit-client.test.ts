import { expect, it } from 'vitest';
import { SubmitClient } from '../../src/client/submit-client.ts';

it('refuses indexes before anything is sent: requests are shared, so an index would name somebody else’s task', async () => {
  const client = new SubmitClient({ url: 'http://127.0.0.1:9', token: 't' });
  await expect(client.submit({ template: 'hello', args: {}, needs: ['k7q2', 0] })).rejects.toMatchObject({
    code: 'invalid_request',
    field: 'needs',
  });
  await client.close();
});
